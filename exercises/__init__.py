"""What the reader fills in, one module for each chapter."""
