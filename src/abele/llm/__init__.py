"""Language models: modules, generation on the device, serving, sizing and tuning."""
