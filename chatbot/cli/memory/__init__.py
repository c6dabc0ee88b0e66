"""`chatbot memory`: look at what is remembered, and change it.

command    opens memory and runs one action    grammar    what may stand on the command line
looking    search, list, get, timeline …       tables     observations as rows and as text
changing   add, edit, supersede, purge …       people, tasks, facts, extracting, exporting    their actions
"""
