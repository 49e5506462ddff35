cellar help version <&- >&- 2>&-
