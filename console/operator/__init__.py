"""The console of operator and analyst: releases, their promise, services and budgets."""
