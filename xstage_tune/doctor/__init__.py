"""What this machine can do: every precondition checked, every path proved by a transfer."""
