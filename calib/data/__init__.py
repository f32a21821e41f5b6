"""Package data: model configurations, the JSON Schema of the coefficient file."""
