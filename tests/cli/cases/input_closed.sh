# A file must not become the standard input or output that the caller closed.
cellar help version <&- && cellar help version 2>&-
