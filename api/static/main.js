// What makes pages pleasant, and none of them needs: live parts, files for the box, commands to copy.

const RETRY_MS = 3000;
const SHARED_MS = 500;
const SAID_MS = 2000;

// Live parts: fetched anew as the server renders them, and put in place of the old ones.

// As the server wrote them: whoever reads changes them.
const served = new WeakMap();

function prepare(region) {
  served.set(region, region.innerHTML);
  offerCopies(region);
}

async function asked() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  return answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
}

// Parts that are due at the same time come from one answer.
let latest = null;
function shared() {
  latest ??= asked().finally(() => setTimeout(() => { latest = null; }, SHARED_MS));
  return latest;
}

async function renewed(region, page) {
  const next = page?.getElementById(region.id);
  if (!next) return region;
  document.title = page.title;
  if (next.innerHTML === served.get(region) && next.dataset.live === region.dataset.live) return region;
  prepare(next);
  keep(region, next);
  region.replaceWith(next);
  return next;
}

// What a reader has opened stays open, and what has the focus keeps it.
function keep(region, next) {
  const open = new Set([...region.querySelectorAll("details[open] > summary")].map((each) => each.textContent));
  for (const summary of next.querySelectorAll("details > summary")) {
    if (open.has(summary.textContent)) summary.parentElement.open = true;
  }
  const active = document.activeElement;
  if (!region.contains(active)) return;
  const path = active.getAttribute("href");
  const places = [...region.querySelectorAll(active.tagName)];
  queueMicrotask(() => {
    const found = path === null
      ? next.querySelectorAll(active.tagName)[places.indexOf(active)]
      : [...next.querySelectorAll("a")].find((each) => each.getAttribute("href") === path);
    found?.focus({ preventScroll: true });
  });
}

function renewEvery(region) {
  const seconds = Number(region.dataset.live);
  if (!seconds) return;
  setTimeout(async () => {
    let next = region;
    // Nobody looks: nothing is asked.
    if (!document.hidden) next = await shared().then((page) => renewed(region, page)).catch(() => region);
    renewEvery(next);
  }, seconds * 1000);
}

// A submission tells by itself when there is something new.
function follow(region) {
  let current = region;
  let waiting = false;
  let working = false;
  const show = async () => {
    waiting = true;
    if (working) return;
    working = true;
    while (waiting) {
      waiting = false;
      current = await asked().then((page) => renewed(current, page)).catch(() => current);
    }
    working = false;
  };
  const listen = () => {
    const events = new EventSource(region.dataset.events);
    events.addEventListener("progress", show);
    events.addEventListener("done", async () => {
      events.close();
      await show();
      renewEvery(current);
    });
    events.addEventListener("error", () => {
      if (events.readyState !== EventSource.CLOSED) return;
      setTimeout(listen, RETRY_MS);
    });
  };
  listen();
}

// The box takes files: dropped on it, or chosen.
function takeFiles(form) {
  const text = form.querySelector("textarea");
  const line = form.querySelector(".drop");
  const chosen = line.querySelector("input");
  const said = line.querySelector("[role=status]");
  const take = async (file) => {
    if (!file) return;
    text.value = await file.text();
    const label = form.elements.namedItem("label");
    if (!label.value) label.value = file.name.replace(/\.\w+$/, "").slice(0, 200);
    said.textContent = `${file.name} is in the box.`;
    text.focus();
  };
  line.hidden = false;
  chosen.addEventListener("change", () => take(chosen.files[0]));
  form.addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("over");
  });
  form.addEventListener("dragleave", () => form.classList.remove("over"));
  form.addEventListener("drop", (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    form.classList.remove("over");
    take(event.dataTransfer.files[0]);
  });
}

// Commands can be copied, where the browser lets a page do that.
function offerCopies(within) {
  if (navigator.clipboard) within.querySelectorAll("[data-copy]").forEach(offerCopy);
}

function offerCopy(text) {
  const box = document.createElement("div");
  box.className = "copied";
  text.replaceWith(box);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, SAID_MS);
  });
  box.append(text, button);
}

document.querySelectorAll("[data-live], [data-events]").forEach((each) => served.set(each, each.innerHTML));
offerCopies(document);
document.querySelectorAll("[data-live]").forEach(renewEvery);
document.querySelectorAll("[data-events]").forEach(follow);
document.querySelectorAll("[data-drop]").forEach(takeFiles);
