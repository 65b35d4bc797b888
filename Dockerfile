# syntax=docker/dockerfile:1
#
# Four images from one file; docker-compose.yml uses them all, docs/deploying.md explains them:
#     docker build --target api .            the HTTP API and its pages: no torch, no compiler
#     docker build --target build-worker .   compiles C++ and CUDA; needs no GPU
#     docker build --target gpu-worker .     evaluates on GPUs, one process each
#     docker build --target cpu-worker .     evaluates on CPUs, and compiles for that where there is no GPU

ARG PYTHON_IMAGE=python:3.12-slim-bookworm
# nvcc must have the major version of CUDA that torch was built with: python -c 'import torch; print(torch.version.cuda)'
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-devel-ubuntu24.04

# --- what is ours -----------------------------------------------------------------------------------------------------

FROM scratch AS sources
COPY pyproject.toml requirements.in requirements.lock README.md LICENSE /
COPY api /api
COPY kerneljudge /kerneljudge
COPY kerneljudge_server /kerneljudge_server
COPY docker /docker
COPY evaluator /evaluator
COPY runtime /runtime
COPY storage /storage
COPY worker /worker
COPY reference_models /reference_models

# --- without CUDA -----------------------------------------------------------------------------------------------------

FROM ${PYTHON_IMAGE} AS slim
ENV PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/srv/kerneljudge \
    KERNELJUDGE_DATA_DIR=/data KERNELJUDGE_PROBLEMS_DIR=/srv/kerneljudge/reference_models \
    KERNELJUDGE_EXTRA_PROBLEMS_DIR=/data/problems
RUN python3 -m venv /opt/venv \
    && useradd --uid 10001 --create-home kerneljudge \
    && install --directory --owner=kerneljudge --group=kerneljudge /data /data/cache /data/scratch
WORKDIR /srv/kerneljudge
COPY pyproject.toml requirements.in requirements.lock ./
COPY docker ./docker

FROM slim AS api
RUN python docker/requirements.py torch ninja numpy setuptools > /tmp/requirements.txt \
    && pip install --constraint requirements.lock --requirement /tmp/requirements.txt
# Not the user of the workers: the kernel counts some things by user, and a candidate may use these up.
RUN useradd --uid 10002 --create-home kerneljudge-api
COPY --from=sources / ./
USER 10002
ENV KERNELJUDGE_HOST=0.0.0.0 KERNELJUDGE_PORT=8000
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=6 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
CMD ["python", "-m", "api"]

FROM slim AS cpu-worker
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ libseccomp2 \
    && apt-get install --yes --no-install-recommends "gcc-$(c++ -dumpversion)-plugin-dev" \
    && rm -rf /var/lib/apt/lists/*
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python docker/requirements.py --with s3 > /tmp/requirements.txt \
    && pip install --extra-index-url "${TORCH_INDEX}" --constraint requirements.lock --requirement /tmp/requirements.txt
COPY --from=sources / ./
# Builds are right without it, and slower.
RUN python -m kerneljudge prepare instantiated precompiled || true
USER 10001
HEALTHCHECK --interval=15s --timeout=10s --start-period=120s --retries=4 \
    CMD ["python", "docker/worker_health.py"]
CMD ["python", "-m", "worker", "--queue", "evaluate.cpu", "--device", "cpu"]

# --- with CUDA --------------------------------------------------------------------------------------------------------

FROM ${CUDA_IMAGE} AS cuda
ENV PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PATH=/opt/venv/bin:/usr/local/cuda/bin:$PATH \
    PYTHONPATH=/srv/kerneljudge \
    CUDA_HOME=/usr/local/cuda \
    KERNELJUDGE_DATA_DIR=/data KERNELJUDGE_PROBLEMS_DIR=/srv/kerneljudge/reference_models \
    KERNELJUDGE_EXTRA_PROBLEMS_DIR=/data/problems
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        binutils clang-19 g++ libseccomp2 mold python3 python3-dev python3-venv \
    && apt-get install --yes --no-install-recommends "gcc-$(c++ -dumpversion)-plugin-dev" \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/venv \
    && useradd --uid 10001 --create-home kerneljudge \
    && install --directory --owner=kerneljudge --group=kerneljudge /data /data/cache /data/scratch
WORKDIR /srv/kerneljudge
COPY pyproject.toml requirements.in requirements.lock ./
COPY docker ./docker
RUN python docker/requirements.py --with s3 > /tmp/requirements.txt \
    && pip install --constraint requirements.lock --requirement /tmp/requirements.txt
COPY --from=sources / ./
# Builds are right without it, and slower. For the GPUs that are compiled for where none is at hand.
RUN python -m kerneljudge prepare || true
USER 10001
HEALTHCHECK --interval=15s --timeout=10s --start-period=120s --retries=4 \
    CMD ["python", "docker/worker_health.py"]

FROM cuda AS build-worker
CMD ["python", "-m", "worker", "--queue", "build"]

FROM cuda AS gpu-worker
CMD ["python", "-m", "worker", "--queue", "evaluate.cuda", "--device", "all"]
