"""Where a converted model goes: files for other runtimes. A target knows graphs, no rule."""
