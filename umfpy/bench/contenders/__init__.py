"""Who is measured beside umfpy; `registry` lists them."""
