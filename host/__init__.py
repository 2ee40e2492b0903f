"""What runs on the user's computer: transport, link client, session."""
