"""HTTP itself: errors as problem details, middleware, metrics, the OpenAPI document and the context of a request."""
