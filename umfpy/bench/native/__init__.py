"""The loops in C: built where they are used, so that they run against what is installed."""
