"""What is measured, a module for each scenario; `registry` lists them."""
