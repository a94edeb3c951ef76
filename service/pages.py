"""The page for people, at ``/``."""

from fastapi import APIRouter

router = APIRouter()
