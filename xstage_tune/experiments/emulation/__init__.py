"""Emulation: what a schedule does on a real fabric, before its kernel is written."""
