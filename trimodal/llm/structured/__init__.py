"""Makes the grammars that answers must follow: of JSON, of a JSON Schema, of calls of functions."""
