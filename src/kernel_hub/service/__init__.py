"""What a hub answers, without a word of HTTP: revisions, snapshots, history."""
