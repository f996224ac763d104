"""The rules: each module looks at one part of a repository and yields findings."""
