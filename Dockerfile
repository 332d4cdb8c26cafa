# Serves the exported models in a folder, such as serving/en-es (docs/serving.md):
#   docker build -t xling_tf .
#   docker run -p 8501:8501 -v $PWD/serving:/models xling_tf --model /models/en-es
FROM python:3.12-slim
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY data data
COPY evaluation evaluation
COPY export export
COPY training training
COPY xling_tf xling_tf
RUN pip install --no-cache-dir '.[serving]'
USER nobody
EXPOSE 8501
ENTRYPOINT ["xling-tf", "serve", "--host", "0.0.0.0"]
