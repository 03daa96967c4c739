"""What every submission must pass: `gradleak check`, and the tests of all that are registered."""
