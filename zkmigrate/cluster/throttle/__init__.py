"""The replication throttle that follows the load: rules without effects. Rates are bytes per second."""
