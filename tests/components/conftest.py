import pytest
import training_cases


@pytest.fixture
def trainer(tmp_path):
    """Runs OptimizedTrainer in the test's folder."""
    return training_cases.Trainer(tmp_path)
