"""Rules for the replication throttle that follows the load, without effects. Rates are bytes per second."""
