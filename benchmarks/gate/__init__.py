"""How often the gate is wrong: false alarms and missed regressions, compared with other tools."""
