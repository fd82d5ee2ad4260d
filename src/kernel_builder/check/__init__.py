"""What a built variant must keep to, each rule a module that turns facts into findings."""
