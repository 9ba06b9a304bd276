"""``onesigma report``: one page about a user's own model on their own data."""
