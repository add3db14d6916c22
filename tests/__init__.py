"""The tests; a package, because tools that draw cases are run from it."""
