"""``shoal console``: the operator's and analyst's pages in the browser."""
