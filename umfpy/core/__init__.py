"""The compiled core: extent map, extents, pools.  It knows no driver; see ``DESIGN.md``."""
