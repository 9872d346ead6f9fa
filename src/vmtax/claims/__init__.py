"""Published claims: tables of figures as data, and rules that find what is wrong with them. Pure."""
