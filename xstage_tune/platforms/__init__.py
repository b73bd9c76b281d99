"""Platform profiles: schema and loader."""
