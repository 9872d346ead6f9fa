"""What is measured and what it stands on: a provisioned host, guests' cards, a VM of the user's, Windows."""
