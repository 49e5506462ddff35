# What a session holds of a prompt is not read again; the figures say how much.
figures() { sed 's/, [0-9.]* tokens\/s.*//' figures; }
cellar run -n 0 --session s -p 'Once upon a time there was a house.' 2>figures >text; figures
cellar run -n 0 --session s -p 'Once upon a time there was a house.' 2>figures >text; figures; cat text
cellar run -n 0 --session s -p 'Once upon a time there was a house. It was old.' 2>figures >text; figures; cat text
cellar run -n 0 --session s -p ' Nobody lived in it.' 2>figures >text; figures; cat text
cellar run -n 0 --session s --replace -p 'Once upon a time there was a tree.' 2>figures >text; figures; cat text
cellar run -n 0 --session s 2>figures >text; figures; cat text
