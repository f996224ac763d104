"""Our parsers as fuzz targets: each takes bytes, and raises only where a parser breaks its promise."""
