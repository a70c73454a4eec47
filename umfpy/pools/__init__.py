"""The pools: allocation policies over the extent map."""
