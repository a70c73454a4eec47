class Empty:
    """Nothing; made and dropped to see what that alone costs."""
