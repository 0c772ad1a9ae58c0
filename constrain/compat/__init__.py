"""Other packages' names for what constrain has, for programs that were written for them."""
