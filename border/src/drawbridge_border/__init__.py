"""Drawbridge's border: the policy module inside Synapse (plane 3)."""

from .module import BorderModule

__all__ = ["BorderModule"]
