"""Who may look at the console beyond loopback: certificates or OpenID Connect, roles, the audit."""
