"""What every process of an installation is started with: settings, traces, and whoever keeps it running."""
