"""TraceWriter: the observer that writes a trace file. `FORMAT.md` beside this module describes the file."""
