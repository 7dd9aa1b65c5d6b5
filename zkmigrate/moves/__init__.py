"""What is special to the move of a ZooKeeper user besides its steps: the words of its pages."""
