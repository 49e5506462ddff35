cellar run -q -n 4 <&- | head -c 16
