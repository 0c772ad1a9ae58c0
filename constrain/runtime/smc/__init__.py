"""Sequential Monte Carlo: requests whose outputs follow the distribution of the model, given their constraint."""
