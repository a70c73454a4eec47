"""Doubles that several suites share."""
