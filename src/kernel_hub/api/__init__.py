"""The wire: requests are read, the service is asked, answers are written."""
