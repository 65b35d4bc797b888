"""The services behind routes and pages: authentication, rate limits, caches, exports, and handing in."""
