"""Steps of a job held against others: where the excess is, who waited for whom, what stands out."""
