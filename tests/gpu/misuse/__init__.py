"""Code that must fail type checking: wrong uses of the GPU libraries, each marked with the error expected."""
