"""What routes and pages rest on: authentication, rate limits, caches, exports, and handing work in."""
