"""How often the gate is wrong: false alarms and missed regressions, beside other tools."""
